//! The calls on a copy of a stack, by the unwind tables of the program.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, Pointer, Register, RegisterRule,
    UnwindContext, UnwindSection as _, UnwindTableRow,
};

use crate::process::stack_notes::FRAMES_MAX;
use crate::sys::thread_stack::{REGISTERS, STACK_POINTER, ThreadStack};
use crate::sys::unwind_tables::{UnwindTables, with_tables};

/// The DWARF numbers of the frame pointer and of the return address.
#[cfg(target_arch = "x86_64")]
const FRAME_POINTER: usize = 6;
#[cfg(target_arch = "x86_64")]
const RETURN_ADDRESS: usize = 16;
#[cfg(target_arch = "aarch64")]
const FRAME_POINTER: usize = 29;
#[cfg(target_arch = "aarch64")]
const RETURN_ADDRESS: usize = 30;

/// The registers of one call.
type Registers = [u64; REGISTERS];

/// The memory of a stack from an address on.
struct StackCopy<'a> {
    begin: u64,
    bytes: &'a [u8],
}

impl StackCopy<'_> {
    fn read(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.begin)?).ok()?;
        let bytes = self.bytes.get(offset..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*bytes))
    }
}

/// Returns the return addresses of a copied stack, the innermost first.
pub(super) fn addresses(copy: &ThreadStack) -> Vec<usize> {
    let stack = StackCopy { begin: copy.registers[STACK_POINTER], bytes: &copy.stack };
    // Symbols are looked up one byte before a return address. The first one is none.
    let mut stack_addresses = vec![(copy.next as usize).wrapping_add(1)];
    let mut registers = copy.registers;
    let mut at = copy.next;
    while stack_addresses.len() < FRAMES_MAX {
        let Some(caller) = caller(at, &registers, &stack) else { break };
        let next = caller[RETURN_ADDRESS];
        if next == 0 || caller[STACK_POINTER] < registers[STACK_POINTER] || caller == registers {
            break;
        }
        stack_addresses.push(next as usize);
        registers = caller;
        at = next.wrapping_sub(1);
    }
    stack_addresses
}

/// Returns the registers of the caller of the function at an address.
fn caller(at: u64, registers: &Registers, stack: &StackCopy<'_>) -> Option<Registers> {
    let mut row = None;
    with_tables(at as usize, &mut |tables| row = row_of(tables, at));
    match row {
        Some(row) => by_row(&row, registers, stack),
        None => by_frame_pointer(registers, stack),
    }
}

/// Returns the rules for the function at an address, if there are any.
fn row_of(tables: &UnwindTables<'_>, at: u64) -> Option<UnwindTableRow<usize>> {
    let from = |address: u64| {
        let offset = usize::try_from(address.checked_sub(tables.address)?).ok()?;
        tables.bytes.get(offset..)
    };
    let bases = BaseAddresses::default().set_eh_frame_hdr(tables.index);
    let header = EhFrameHdr::new(from(tables.index)?, NativeEndian).parse(&bases, 8).ok()?;
    let Pointer::Direct(frames_at) = header.eh_frame_ptr() else { return None };
    let frames = EhFrame::new(from(frames_at)?, NativeEndian);
    let bases = bases.set_eh_frame(frames_at);
    let mut context = UnwindContext::new();
    let cie = EhFrame::cie_from_offset;
    let row = header.table()?.unwind_info_for_address(&frames, &bases, &mut context, at, cie);
    row.ok().cloned()
}

/// Returns the registers of the caller, or `None` at the end of the stack.
fn by_row(
    row: &UnwindTableRow<usize>,
    registers: &Registers,
    stack: &StackCopy<'_>,
) -> Option<Registers> {
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let frame = registers.get(usize::from(register.0))?.wrapping_add_signed(*offset);
    let mut caller = *registers;
    caller[STACK_POINTER] = frame;
    for (number, value) in caller.iter_mut().enumerate() {
        match row.register(Register(number as u16)) {
            None | Some(RegisterRule::SameValue) => {}
            Some(RegisterRule::Offset(offset)) => {
                *value = stack.read(frame.wrapping_add_signed(offset))?;
            }
            Some(RegisterRule::ValOffset(offset)) => *value = frame.wrapping_add_signed(offset),
            Some(RegisterRule::Register(other)) => {
                *value = *registers.get(usize::from(other.0))?;
            }
            // The end of the stack, or a rule that compilers do not make.
            Some(_) if number == RETURN_ADDRESS => return None,
            Some(_) => *value = 0,
        }
    }
    Some(caller)
}

/// Returns the registers of the caller of a function that keeps a frame pointer and has no tables.
fn by_frame_pointer(registers: &Registers, stack: &StackCopy<'_>) -> Option<Registers> {
    let frame = registers[FRAME_POINTER];
    let mut caller = *registers;
    caller[FRAME_POINTER] = stack.read(frame)?;
    caller[RETURN_ADDRESS] = stack.read(frame.wrapping_add(8))?;
    caller[STACK_POINTER] = frame.wrapping_add(16);
    Some(caller)
}
