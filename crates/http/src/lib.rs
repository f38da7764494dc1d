//! weir-http
