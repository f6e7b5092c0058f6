"""Options that several commands share: `places` has those for where topics are, `schemas` those for where schemas are."""
