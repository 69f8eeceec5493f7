//! The unwind tables of the program and its libraries, as they are mapped.
//!
//! ## Invariants
//! - `[mapped]` while `dl_iterate_phdr` calls back, the object that it passes stays mapped. A
//!   segment that is readable and not writable is not changed, and its first `p_filesz` bytes are
//!   the bytes of a file that was mapped.

use std::ptr;
use std::slice;

use libc::{c_int, c_void, dl_phdr_info};

/// A read-only segment of the program or of a library, with an index of unwind tables in it.
pub(crate) struct UnwindTables<'a> {
    /// The segment.
    pub(crate) bytes: &'a [u8],
    /// The address of the segment.
    pub(crate) address: u64,
    /// The address of the section `.eh_frame_hdr`.
    pub(crate) index: u64,
}

struct TableSearch<'a> {
    address: usize,
    found: &'a mut dyn FnMut(&UnwindTables<'_>),
}

/// Calls `found` with the tables for the function at an address, if there are any. It must not load
/// or unload libraries.
pub(crate) fn with_tables(address: usize, found: &mut dyn FnMut(&UnwindTables<'_>)) {
    let mut search = TableSearch { address, found };
    let data = ptr::from_mut(&mut search).cast::<c_void>();
    // SAFETY: `visit` gets `data` back, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), data) };
}

extern "C" fn visit(info: *mut dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the system passes the object.
    let info = unsafe { &*info };
    // SAFETY: the system passes the data of `with_tables`.
    let search = unsafe { &mut *data.cast::<TableSearch<'_>>() };
    // SAFETY: as the system promises.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let holds = |header: &libc::Elf64_Phdr, address: usize| {
        let begin = base.wrapping_add(header.p_vaddr as usize);
        header.p_type == libc::PT_LOAD && address.wrapping_sub(begin) < header.p_filesz as usize
    };
    if !headers.iter().any(|header| holds(header, search.address)) {
        return 0;
    }
    let index = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
    let Some(index) = index.map(|index| base.wrapping_add(index.p_vaddr as usize)) else {
        return 1;
    };
    let is_constant =
        |header: &&libc::Elf64_Phdr| header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R;
    let segment = headers.iter().filter(is_constant).find(|header| holds(header, index));
    if let Some(segment) = segment {
        let address = base.wrapping_add(segment.p_vaddr as usize);
        let begin = ptr::with_exposed_provenance(address);
        // SAFETY: [mapped]
        let bytes = unsafe { slice::from_raw_parts(begin, segment.p_filesz as usize) };
        (search.found)(&UnwindTables { bytes, address: address as u64, index: index as u64 });
    }
    1
}
