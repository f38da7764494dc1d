//! Where a mapping is, on Windows: a file that is mapped is cut short by nobody.

use std::io;

pub struct Place;

static PLACE: Place = Place;

impl Place {
    /// Of a mapping that is there.
    ///
    /// # Errors
    ///
    /// None.
    pub fn of(_: usize, _: usize) -> io::Result<&'static Place> {
        Ok(&PLACE)
    }

    pub fn give_back(&self) {}

    pub fn is_cut(&self) -> bool {
        false
    }
}
