from storage.counts.topic_counts import TopicCounts as TopicCounts
