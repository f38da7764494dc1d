//! weir-script
