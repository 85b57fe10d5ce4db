//! Why the gateway refuses a request itself.

crate::words! {
    /// Why the gateway refused a request.
    pub enum RefusalReason {
        /// A limit of the key or the user.
        Limit = "limit",
        /// No target could take it: all of its rule were ineligible.
        Target = "target",
        /// The routing document does not know the model.
        Model = "model",
        /// What it asks for, or how it is written.
        Request = "request",
    }
}
