"""Small mistakes made on purpose, one at a time, and the tests that should notice each mistake: `make mutants`.

`edits/` lists the mutants. A mutant has a file, an exact text and its replacement, a sentence with the rule that is
broken, and the tests that should fail. `catalog` reads the list and finds edits that no longer fit the code, `trial`
makes an edit in a scratch copy of the checkout and runs the tests there, `results` stores and counts the verdicts,
and `__main__` is the command. docs/testing.md has the score.

The project has its own list because no tool makes these mistakes: a missing flush, two steps in the wrong order, a
bound that is off by one. mutmut rewrites functions in place and imports them, so it never reaches compiled modules;
cosmic-ray edits the checkout itself and would try some thirty thousand changes of operators, at ten seconds each.
"""
