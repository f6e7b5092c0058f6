"""The options that several commands share: `places` names where topics are, `schemas` where the schemas of payloads are."""
