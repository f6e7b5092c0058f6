from fusefs.requests.request_counts import RequestCounts as RequestCounts
from fusefs.requests.request_counts import now as now
