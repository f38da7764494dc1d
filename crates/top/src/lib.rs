//! `weir top`: what one server or several do, live in a terminal, as a text or as JSON.
//!
//! Servers are asked by who starts it ([`Ask`]: a control socket, an API); each answers with a document of all its
//! figures. Two documents of a server are a picture of the time between them; pictures of several servers are added up.
//! All of that, and what is drawn of it, knows no terminal, no socket and no clock: documents in, lines out. [`screen`]
//! alone has the terminal.
//!
//! What servers tell is anybody's: names, URLs, lines of logs. It is made visible before it is shown
//! ([`weir_analytics::shown`]), and its length is bounded by who asks.

mod cell;
mod document;
mod history;
mod json;
mod names;
mod picture;
mod screen;
mod sources;
mod specs;
mod spread;
mod table;
mod text;
mod ui;
mod view;

pub use screen::{watch, width};
pub use sources::{look, Ask, Sources};

use std::time::Duration;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Between two looks.
    pub interval: Duration,
    pub is_coloured: bool,
}

/// One picture as text, as wide as that.
pub fn once(sources: &Sources, width: u16) -> String {
    view::whole(&sources.picture(false), width)
}

/// One picture as JSON, in ASCII alone.
pub fn json(sources: &Sources) -> String {
    json::document(&sources.picture(false))
}
