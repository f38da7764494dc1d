//! The core module's variables.

use crate::module::Variable;

pub const VARIABLES: &[Variable] = &[];
