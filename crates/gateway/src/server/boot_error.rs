//! The error of a gateway that cannot start.

use rerouter_store::StoreError;

/// Why a gateway cannot start, in words for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BootError(pub String);

impl From<StoreError> for BootError {
    fn from(error: StoreError) -> Self {
        BootError(error.to_string())
    }
}
