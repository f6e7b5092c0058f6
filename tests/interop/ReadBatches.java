// Prints for each file, which holds one batch, what Kafka's own readers make of it: how many records, or the error.
// "consumer" reads keys and values, "broker" what the check of an append reads.

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

public class ReadBatches {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(name)));
            MutableRecordBatch batch = MemoryRecords.readableRecords(bytes).batches().iterator().next();
            System.out.println("consumer\t" + name + "\t" + read(batch, false));
            System.out.println("broker\t" + name + "\t" + read(batch, true));
        }
    }

    private static String read(MutableRecordBatch batch, boolean skips) {
        long count = 0;
        try (CloseableIterator<Record> records = skips
                ? ((DefaultRecordBatch) batch).skipKeyValueIterator(BufferSupplier.create())
                : batch.streamingIterator(BufferSupplier.create())) {
            while (records.hasNext()) {
                records.next();
                count++;
            }
        } catch (Throwable error) {
            Throwable cause = error;
            while (cause.getCause() != null)
                cause = cause.getCause();
            return "error\t" + count + "\t" + error.getClass().getSimpleName() + ": " + cause;
        }
        return "read\t" + count + "\t";
    }
}
