//! The workload of files.

use super::{Definition, Figure};

pub(crate) const FS_READ: Definition = Definition {
    name: "fs_read",
    what: "files of 4 KiB are read whole 20 k times, by one process and by 16; a large one in parts",
    figures: &[
        Figure { name: "fs_read", unit: "ns", per: "file" },
        Figure { name: "fs_read_many", unit: "ns", per: "file" },
        Figure { name: "fs_read_part", unit: "ns", per: "read" },
    ],
};
pub(crate) const FS_READ_COUNT: u64 = 20_000;
pub(crate) const FS_READ_AT_ONCE: u64 = 16;
pub(crate) const FS_READ_SMALL: usize = 4 << 10;
pub(crate) const FS_READ_LARGE: u64 = 16 << 20;
