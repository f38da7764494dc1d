//! weir-modules
