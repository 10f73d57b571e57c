"""The cases: each module has `rows(bench)`, which measures and yields its rows."""
