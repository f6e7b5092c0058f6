from topicfs.storage.counts.topic_counts import TopicCounts as TopicCounts
