"""Objects that the kernel refers to: nodes of the tree, and their inode numbers.

`nodes` says what every directory, file and link can do, and keeps their numbers and the kernel's references.
`context` is what all of them share.
"""
