//! Handshakes with servers that code of a module has a say in: what they are shown, and what is thought of what they
//! show.

use crate::Show;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use weir_core::LocalFuture;
use weir_module::Slots;
use weir_tls::rustls::pki_types::CertificateDer;

/// When code runs in such a handshake, as bits, and what goes with them: before it, for the certificate that is shown.
pub const CERTIFICATE: u8 = 1;
/// Behind it, for the one that the server has shown.
pub const VERIFY: u8 = 1 << 1;
/// The server's chain is judged by code alone.
pub const ALONE: u8 = 1 << 2;

/// One of them, as code sees it.
#[derive(Default)]
pub struct Toward {
    /// The versions that may be spoken, if that is one.
    pub version: Option<u16>,
    /// What the server is shown in place of what the configuration says.
    pub show: RefCell<Show>,
    /// What the server has shown, its own certificate first.
    pub shown: Vec<CertificateDer<'static>>,
    /// What is thought of that, by OpenSSL's numbers.
    pub verdict: Cell<u32>,
    /// Of the code's own.
    pub own: RefCell<Option<Box<dyn Any>>>,
}

/// Code of handshakes with servers, for sessions of that kind.
pub struct Code<S: 'static> {
    /// What there is of it in a place of the configuration.
    pub moments: fn(&Slots) -> u8,
    /// Runs it; `false` ends the handshake.
    pub says: for<'r> fn(&'r mut S, u8, Rc<Toward>) -> LocalFuture<'r, bool>,
}

impl<S> Clone for Code<S> {
    fn clone(&self) -> Code<S> {
        *self
    }
}

impl<S> Copy for Code<S> {}
