"""Objects that the kernel refers to: nodes of the tree, and their inode numbers.

`nodes` has the base classes of directories, files and links, and the table of all nodes that the kernel knows.
`context` has the objects that all nodes share.
"""
