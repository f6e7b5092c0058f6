"""Objects that the kernel refers to: nodes of the tree, and their inode numbers.

`nodes` has the base classes of directories, files and links, and the table with their IDs and the kernel's
references. `context` is what all of them share.
"""
