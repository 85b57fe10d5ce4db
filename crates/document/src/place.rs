//! Values with their places, and problems at these places.

/// A position in a document. Lines and columns count from one, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Located<T> {
    pub value: T,
    /// Path in the document, such as `recipes.balanced.rules[0].when`.
    pub path: String,
    pub at: Position,
}

impl<T> Located<T> {
    pub fn fault(&self, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), at: self.at, message: message.into(), hint: None }
    }
}

/// A problem at one position of a document. Messages quote names, never credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    pub at: Position,
    pub message: String,
    pub hint: Option<String>,
}

impl Finding {
    #[must_use]
    pub fn hint(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hint = hint.map(Into::into);
        self
    }
}
