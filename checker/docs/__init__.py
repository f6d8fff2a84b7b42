"""What is generated in the documentation: blocks between two marks in Markdown files, each from the code it speaks of.

`python -m checker.docs` rewrites them, `--check` compares them. What stands outside the marks is written by hand.
"""
