//! Opens a door: its sockets, and the scheduler of its server.

use std::sync::Arc;

use super::access::{Keys, Way};
use super::history;
use super::opened::Opened;
use super::routes::Observed;
use super::serve;
use super::settings::{DoorChoice, DoorOptions};
use super::socket;
use crate::net::bind_before;
use crate::scheduler::error::DoorError;
use crate::scheduler::shared::Shared;
use crate::sys::stderr;
use crate::sys::system::program;
use crate::{OnCancel, Scheduler, SpawnOptions};

/// The environment variable that opens doors.
const VARIABLE: &str = "PROCESSION_DOOR";
/// The maximum number of the server's processes: the listeners, the connections, and a few that
/// end.
const PROCESSES: u32 = 256;

/// Opens the door of a scheduler, if it is to have one.
///
/// # Errors
/// The door that the program asked for cannot be opened. If only the environment asked for it, the
/// error is reported instead.
pub(crate) fn open(shared: &Arc<Shared>, choice: &DoorChoice) -> Result<Option<Opened>, DoorError> {
    match choice {
        DoorChoice::Given(options) => enter(shared, options).map(Some),
        DoorChoice::ByVariable if is_wanted(shared) => {
            let opened = enter(shared, &DoorOptions::default());
            Ok(opened.inspect_err(|error| stderr::write(&shared.world, error)).ok())
        }
        DoorChoice::ByVariable | DoorChoice::None => Ok(None),
    }
}

/// Returns `true` if the environment asks for a door, and may.
fn is_wanted(shared: &Shared) -> bool {
    let is_real = !shared.world.is_test() && shared.world.simulated().is_none();
    is_real
        && std::env::var_os(VARIABLE).is_some_and(|value| value == "1")
        && !program::has_more_rights()
}

fn enter(shared: &Arc<Shared>, options: &DoorOptions) -> Result<Opened, DoorError> {
    let tcp = options.tcp.map(|address| {
        if !address.ip().is_loopback() {
            return Err(DoorError::NotLoopback(address));
        }
        let error = |error| DoorError::Tcp(address, error);
        bind_before(address).map_err(error)
    });
    let tcp = tcp.transpose()?;
    let mut bytes = [0; 4];
    program::fill_at_random(&mut bytes).map_err(DoorError::Random)?;
    let (listener, file) = socket::listen(options.directory.as_deref(), u32::from_ne_bytes(bytes))?;
    // One thread: whatever a request does, it does not block.
    let server = Scheduler::builder().no_door().name("procession-door").worker_threads(1);
    #[cfg(feature = "tokio")]
    let server = server.tokio_threads(0);
    let server = server.max_threads(1).max_processes(PROCESSES).build();
    let server = server.map_err(|error| DoorError::Scheduler(error.into()))?;
    let keys = Arc::new(Keys::default());
    let observed = Arc::new(Observed::new(shared, options.actions, Arc::clone(&keys)));
    let process = |label| SpawnOptions::new().on(&server).label(label).on_cancel(OnCancel::Drop);
    if let Some(directory) = file.path().parent() {
        drop(process("sweep").spawn(serve::remove_left(directory.to_owned())));
    }
    let history = Arc::clone(&observed.history);
    drop(process("history").spawn(history::keep(Arc::downgrade(shared), history)));
    drop(process("unix").spawn(serve::listen_unix(listener, Arc::clone(&observed))));
    let address = tcp.as_ref().map(|(_, address)| *address);
    if let Some((listener, address)) = tcp {
        drop(process("tcp").spawn(serve::listen_tcp(listener, Way::Tcp(address), observed)));
    }
    Ok(Opened { socket: file, tcp: address, keys, _server: server })
}
