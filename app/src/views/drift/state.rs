//! What is seen of this view and not of the model: kept while the window is open.

#[derive(Clone, Debug, Default)]
pub struct State {}
