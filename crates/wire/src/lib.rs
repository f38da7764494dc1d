//! weir-wire
