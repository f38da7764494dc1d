//! weir-conf
