//! The memory of a simulated machine, as its threads see it.
//!
//! A run has one of two processors: an x86-64, whose loads pass stores, or a weak one, on which
//! nothing is ordered that the program does not order. Atomics, locks and cells are named by their
//! addresses. An atomic contains the value that was stored last. If its *visible* value is another
//! value, the memory remembers it.

mod buffers;
mod cells;
mod view;
mod weak;

use procession_sync::host::atomic::Ordering::{self, SeqCst};
use procession_sync::simulated::{Loaded, Operation};

use self::buffers::Buffers;
pub(crate) use self::cells::CellAccess;
pub(crate) use self::view::Choose;
use self::weak::Weak;

/// The processor that a run simulates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    /// An x86-64: each thread has a buffer of stores that the other threads do not see yet.
    #[default]
    X86,
    /// Any processor that the memory model of Rust allows, such as an AArch64: a load may find an
    /// old value, and two threads may see two stores in different orders, unless an Acquire, a
    /// Release or a fence forbids it. No load finds a value that is stored later, as load buffering
    /// would have it.
    Weak,
}

/// The memory of a run.
pub(crate) struct Memory(Model);

enum Model {
    X86(Buffers),
    Weak(Weak),
}

impl Memory {
    pub(crate) fn of(processor: Processor) -> Self {
        Self(match processor {
            Processor::X86 => Model::X86(Buffers::default()),
            Processor::Weak => Model::Weak(Weak::default()),
        })
    }

    fn buffers(&self) -> Option<&Buffers> {
        match &self.0 {
            Model::X86(buffers) => Some(buffers),
            Model::Weak(_) => None,
        }
    }

    /// Returns the number of stores in a thread's buffer.
    pub(crate) fn stores(&self, thread: usize) -> u32 {
        self.buffers().map_or(0, |buffers| buffers.stores(thread))
    }

    /// Returns the threads with stores in their buffers, other than `thread`.
    pub(crate) fn others(&self, thread: usize) -> Vec<usize> {
        let others = |buffers: &Buffers| match buffers.is_plain() {
            true => Vec::new(),
            false => buffers.others(thread).collect(),
        };
        self.buffers().map_or_else(Vec::new, others)
    }

    /// Makes the oldest stores of a thread visible.
    pub(crate) fn reveal(&mut self, thread: usize, stores: u32) {
        if let Model::X86(buffers) = &mut self.0 {
            buffers.reveal(thread, stores);
        }
    }

    /// Makes all stores in a thread's buffer visible.
    pub(crate) fn drain(&mut self, thread: usize) {
        if let Model::X86(buffers) = &mut self.0 {
            buffers.drain(thread);
        }
    }

    /// Returns `true` if a load of the thread now passes one of its stores.
    pub(crate) fn passes(&self, thread: usize) -> bool {
        match &self.0 {
            Model::X86(buffers) => buffers.stores(thread) > 0,
            Model::Weak(weak) => weak.has_stored(thread),
        }
    }

    pub(crate) fn load(
        &mut self,
        thread: usize,
        operation: Operation,
        choose: Choose<'_>,
    ) -> Loaded {
        match &mut self.0 {
            Model::X86(buffers) => buffers.load(thread, operation.address),
            Model::Weak(weak) => weak.load(thread, operation, choose),
        }
    }

    pub(crate) fn peek(&mut self, operation: Operation) -> Loaded {
        match &mut self.0 {
            Model::X86(buffers) => buffers.peek(operation.address),
            Model::Weak(weak) => weak.peek(operation),
        }
    }

    pub(crate) fn store(
        &mut self,
        thread: usize,
        operation: Operation,
        value: u64,
        choose: Choose<'_>,
    ) {
        let Operation { address, content, order, .. } = operation;
        match &mut self.0 {
            Model::X86(buffers) if order == SeqCst => buffers.exchange(thread, address, value),
            Model::X86(buffers) => buffers.store(thread, address, content, value),
            Model::Weak(weak) => weak.store(thread, operation, value, choose),
        }
    }

    /// Begins a read-modify-write, as [`Machine::settle`](procession_sync::simulated::Machine).
    pub(crate) fn settle(
        &mut self,
        thread: usize,
        operation: Operation,
        wanted: Option<u64>,
        choose: Choose<'_>,
    ) -> Option<u64> {
        match &mut self.0 {
            Model::X86(buffers) => buffers.settle(thread, operation.address),
            Model::Weak(weak) => weak.settle(thread, operation, wanted, choose),
        }
    }

    /// Ends a read-modify-write, as [`Machine::written`](procession_sync::simulated::Machine).
    pub(crate) fn written(&mut self, thread: usize, operation: Operation, is_written: bool) {
        match &mut self.0 {
            Model::X86(buffers) => buffers.written(operation.address, operation.content),
            Model::Weak(weak) => weak.written(thread, operation, is_written),
        }
    }

    pub(crate) fn fence(&mut self, thread: usize, order: Ordering) {
        match &mut self.0 {
            Model::X86(buffers) if order == SeqCst => buffers.drain(thread),
            Model::X86(_) => {}
            Model::Weak(weak) => weak.fence(thread, order),
        }
    }

    pub(crate) fn heavy_fence(&mut self, thread: usize) {
        match &mut self.0 {
            Model::X86(buffers) => buffers.drain_all(),
            Model::Weak(weak) => weak.heavy_fence(thread),
        }
    }

    /// Time passes: all stores become visible.
    pub(crate) fn let_time_pass(&mut self) {
        match &mut self.0 {
            Model::X86(buffers) => buffers.drain_all(),
            Model::Weak(weak) => weak.let_time_pass(),
        }
    }

    /// Orders all that the threads have done before all that they do from now on.
    pub(crate) fn order_all(&mut self) {
        match &mut self.0 {
            Model::X86(buffers) => buffers.drain_all(),
            Model::Weak(weak) => weak.order_all(),
        }
    }

    /// A thread has an atomic for itself.
    pub(crate) fn own(&mut self, operation: Operation) -> Loaded {
        match &mut self.0 {
            Model::X86(buffers) => {
                buffers.drain_all();
                buffers.peek(operation.address)
            }
            Model::Weak(weak) => weak.own(operation),
        }
    }

    /// Forgets an atomic that no thread uses any more.
    pub(crate) fn forget(&mut self, thread: usize, address: usize) {
        match &mut self.0 {
            Model::X86(buffers) if buffers.is_plain() => {}
            Model::X86(buffers) => {
                buffers.drain(thread);
                buffers.forget(address);
            }
            Model::Weak(weak) => weak.forget(address),
        }
    }

    /// A thread takes a lock.
    pub(crate) fn lock(&mut self, thread: usize, address: usize) {
        if let Model::Weak(weak) = &mut self.0 {
            weak.lock(thread, address);
        }
    }

    /// A thread releases a lock.
    pub(crate) fn unlock(&mut self, thread: usize, address: usize) {
        if let Model::Weak(weak) = &mut self.0 {
            weak.unlock(thread, address);
        }
    }

    /// What a thread has done is before all that another thread does once it is woken.
    pub(crate) fn wake(&mut self, thread: usize, other: usize) {
        if let Model::Weak(weak) = &mut self.0 {
            weak.wake(thread, other);
        }
    }

    /// A thread continues after a wait.
    pub(crate) fn woken(&mut self, thread: usize) {
        if let Model::Weak(weak) = &mut self.0 {
            weak.woken(thread);
        }
    }

    /// A thread starts another one.
    pub(crate) fn start(&mut self, thread: usize, other: usize) {
        self.wake(thread, other);
        self.woken(other);
    }

    /// A thread of a scheduler ends.
    pub(crate) fn end(&mut self) {
        if let Model::Weak(weak) = &mut self.0 {
            weak.order_all();
        }
    }

    /// A thread accesses a cell. Returns an earlier access that conflicts with this one and that
    /// nothing orders before it.
    pub(crate) fn access(
        &mut self,
        thread: usize,
        address: usize,
        access: CellAccess,
    ) -> Option<CellAccess> {
        match &mut self.0 {
            Model::X86(_) => None,
            Model::Weak(weak) => weak.access(thread, address, access),
        }
    }

    /// Forgets a cell or a lock.
    pub(crate) fn forget_object(&mut self, address: usize) {
        if let Model::Weak(weak) = &mut self.0 {
            weak.forget_object(address);
        }
    }

    /// Forgets all that was in memory of so many bytes.
    pub(crate) fn forget_memory(&mut self, address: usize, size: usize) {
        if let Model::Weak(weak) = &mut self.0 {
            weak.forget_memory(address..address + size);
        }
    }
}
