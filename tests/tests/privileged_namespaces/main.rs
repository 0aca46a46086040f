//! The programs in namespaces of their own. They are a program of their own, too: a new mount namespace has what is mounted elsewhere at
//! that time as well, and a volume of another test would be in use until the namespace ends.

mod conventions;
mod elsewhere;
mod operating;
