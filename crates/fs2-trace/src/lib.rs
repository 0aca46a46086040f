//! Disk traces as one stream of arrivals
