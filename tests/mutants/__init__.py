"""Small mistakes made on purpose, one at a time, and the tests that should notice each of them: `make mutants`.

`edits/` lists them: a file of ours, the exact text and what it becomes, the rule that is broken in one sentence, and the tests
that are to fail. `catalog` reads the list and finds edits that no longer fit the code, `trial` makes the edit in a scratch copy
of the checkout and runs the tests there, `results` remembers what came out and counts, `__main__` is the command. docs/testing.md has the score.

The list is the project's own, for no tool at hand knows these mistakes: a flush left out, two steps in the other order, a
bound that is one too far. mutmut rewrites functions in place and imports them, so it never reaches compiled modules;
cosmic-ray edits the checkout itself and would try some thirty thousand changes of operators, at ten seconds each.
"""
