//! weir-module
