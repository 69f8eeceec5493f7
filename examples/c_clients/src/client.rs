//! The clients of `c/clients.h`.
//!
//! ## Invariants
//! - `[client]` A client is a value that its library has made, and it is used by one thread at a
//!   time: each function takes it by a unique reference or by value.
//! - `[why]` There is room for [`WHY`] bytes, and the text in it ends with a zero.

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::fmt;
use std::ptr::NonNull;

const WHY: usize = 256;

type Open = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_void;
type Ask = unsafe extern "C" fn(*mut c_void, c_long, *mut c_char) -> c_int;
type Close = unsafe extern "C" fn(*mut c_void);

macro_rules! libraries {
    ($($name:literal $open:ident $ask:ident $close:ident)*) => {
        unsafe extern "C" {
            $(
                fn $open(place: *const c_char, why: *mut c_char) -> *mut c_void;
                fn $ask(client: *mut c_void, number: c_long, why: *mut c_char) -> c_int;
                fn $close(client: *mut c_void);
            )*
            fn libcurl_load() -> c_int;
        }

        static LIBRARIES: &[Library] =
            &[$(Library { name: $name, open: $open, ask: $ask, close: $close },)*];
    };
}

libraries! {
    "hiredis" hiredis_open hiredis_ask hiredis_close
    "libpq" libpq_open libpq_ask libpq_close
    "libmariadb" libmariadb_open libmariadb_ask libmariadb_close
    "libcurl" libcurl_open libcurl_ask libcurl_close
}

/// A client library.
#[derive(Debug)]
pub struct Library {
    name: &'static str,
    open: Open,
    ask: Ask,
    close: Close,
}

impl Library {
    /// Returns a library by its name. Loads it if it is one that is loaded by name.
    ///
    /// # Errors
    /// There is no library of this name here.
    pub fn named(name: &str) -> Result<&'static Self, Failed> {
        let found = LIBRARIES.iter().find(|library| library.name == name);
        let library = found.ok_or_else(|| Failed(format!("no library is called {name}")))?;
        // SAFETY: it has no preconditions. The program calls this once, before there are clients.
        if name == "libcurl" && unsafe { libcurl_load() } != 0 {
            return Err(Failed("libcurl.so.4 cannot be loaded".to_owned()));
        }
        Ok(library)
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// The library's own description of the failure.
    pub fn open(&'static self, place: &CString) -> Result<Client, Failed> {
        let mut why = [0; WHY];
        // SAFETY: [why]; the place ends with a zero.
        let client = unsafe { (self.open)(place.as_ptr(), why.as_mut_ptr()) };
        let client = NonNull::new(client).ok_or_else(|| Failed::of(&why))?;
        Ok(Client { library: self, client })
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    library: &'static Library,
    client: NonNull<c_void>,
}

// SAFETY: [client] none of the libraries binds a client to a thread.
unsafe impl Send for Client {}

impl Client {
    /// Makes a request, and checks the answer.
    ///
    /// # Errors
    /// The library's own description of the failure, or the wrong answer.
    pub fn ask(&mut self, number: c_long) -> Result<(), Failed> {
        let mut why = [0; WHY];
        // SAFETY: [client], [why].
        let result = unsafe { (self.library.ask)(self.client.as_ptr(), number, why.as_mut_ptr()) };
        if result == 0 { Ok(()) } else { Err(Failed::of(&why)) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: [client] it is not used again.
        unsafe { (self.library.close)(self.client.as_ptr()) };
    }
}

/// A failure that a client describes.
#[derive(Debug)]
pub struct Failed(String);

impl Failed {
    fn of(why: &[c_char; WHY]) -> Self {
        // SAFETY: [why].
        let text = unsafe { CStr::from_ptr(why.as_ptr()) };
        Self(text.to_string_lossy().into_owned())
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Failed {}
