"""Manual pages for man(1), made from what the commands say of themselves: `topicfs manual DIR`.

Nothing is told twice: options, arguments and examples are click's; what man has beside help, exit statuses and files,
stands in `pages.py`. `roff.py` writes a page as man(7) wants it.
"""
