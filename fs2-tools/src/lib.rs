//! mkfs2, chkfs2 and fs2
