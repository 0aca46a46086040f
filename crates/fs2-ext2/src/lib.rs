//! All ext2 knowledge: layout, free blocks, liveness, the reserved inode that holds the table
