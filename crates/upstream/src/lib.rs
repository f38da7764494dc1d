//! weir-upstream
