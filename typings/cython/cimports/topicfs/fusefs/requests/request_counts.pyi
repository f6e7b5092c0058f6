from topicfs.fusefs.requests.request_counts import RequestCounts as RequestCounts
from topicfs.fusefs.requests.request_counts import now as now
