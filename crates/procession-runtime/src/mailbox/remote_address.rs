//! Addresses of the processes of other nodes.

use std::sync::Arc;

use crate::mailbox::address::Address;
use crate::mailbox::parcel::Relay;
use crate::process::typed::FarProcess;
use crate::scheduler::nodes::RemoteNode;

impl RemoteNode {
    /// Returns the address of the process that the node knows by these two numbers. `relay` carries
    /// the messages that are sent through it, and gets them as they are: as boxes of `M`.
    ///
    /// Links, monitors and exit signals go by the [PID](Self::pid), so to the relay of the node.
    /// They are in order with the messages only if both relays use one queue.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use procession::mailbox::relay::{
    ///     InProcess, NodeRelay, Parcel, Relay, RelayError, RemoteNode, RemoteSignal,
    /// };
    /// use procession::{Address, Context, Pid};
    ///
    /// /// The way to a process that is not so far.
    /// struct Near(Pid);
    ///
    /// impl Relay for Near {
    ///     fn relay(&self, mut parcel: Parcel) -> Result<(), RelayError> {
    ///         parcel.to = self.0;
    ///         InProcess.relay(parcel)
    ///     }
    /// }
    ///
    /// impl NodeRelay for Near {
    ///     fn signal(&self, _: RemoteSignal) {}
    /// }
    ///
    /// procession::run(async {
    ///     let child = procession::start(|mut cx: Context<u32>| async move { cx.recv().await });
    ///     let node = RemoteNode::join(Near(child.pid())).expect("not all numbers are taken");
    ///     let address: Address<u32> = node.address(1, 0, Arc::new(Near(child.pid())));
    ///     address.send(7)?;
    ///     assert_eq!(child.await, Ok(Some(7)));
    ///     assert_eq!(address.send(8).unwrap_err().into_inner(), 8);
    ///     Ok::<(), procession::SendError<u32>>(())
    /// })?;
    /// # Ok::<(), procession::SendError<u32>>(())
    /// ```
    pub fn address<M: Send + 'static>(
        &self,
        id: u32,
        serial: u32,
        relay: Arc<dyn Relay>,
    ) -> Address<M> {
        Address::far(Arc::new(FarProcess { pid: self.pid(id, serial), relay }))
    }
}
