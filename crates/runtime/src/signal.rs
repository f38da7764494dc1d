//! Signals, by the names that nginx has for them on every system.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    Hup,
    Quit,
    Term,
    Int,
    Usr1,
    Usr2,
    Winch,
    Chld,
    /// For who has a terminal: it is to stop, and has gone on.
    Tstp,
    Cont,
    /// Only to be sent.
    Stop,
    Kill,
}
