//! weir-base
