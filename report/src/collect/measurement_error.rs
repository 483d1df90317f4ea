//! Why a bench file says nothing of a plan.

/// Why a bench file says nothing of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MeasurementError {
    /// It is no JSON.
    Json(String),
    /// A key is not there, or its value is of another kind.
    Key(&'static str),
    /// It is of another function, or of another plan: what is wrong with it.
    Other(String),
}

impl std::fmt::Display for MeasurementError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MeasurementError::Json(e) => write!(f, "it is no JSON: {e}"),
            MeasurementError::Key(key) => write!(f, "there is no valid `{key}`"),
            MeasurementError::Other(m) => write!(f, "{m}"),
        }
    }
}

impl std::error::Error for MeasurementError {}
