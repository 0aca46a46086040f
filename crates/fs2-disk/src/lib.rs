//! A disk drive as mathematics
