//! An operation: a route, what it takes and gives, and what the OpenAPI document says of it.

use std::sync::Arc;

use http::Method;
use serde_json::Value;

use super::route::{Policy, Responder, Route};
use rerouter_records::schema::SchemaOf;

/// A row of the table.
pub(super) struct Operation {
    pub(super) route: Route,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// Schema of the request body.
    pub(super) takes: Option<Shape>,
    /// Whether an empty body counts as `{}`.
    pub(super) takes_nothing: bool,
    /// Status and schema of a success.
    pub(super) gives: (u16, Option<Shape>),
    /// Error statuses beside those of every operation of the surface.
    pub(super) refuses: &'static [u16],
    pub(super) query: Parameters,
}

/// The schema of a body.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// In `schemas.json`.
    Named(&'static str),
    Of(SchemaOf),
}

/// The parameters of a query.
#[derive(Clone, Copy)]
pub(super) enum Parameters {
    /// Described in `openapi/descriptions.rs`.
    Named(&'static [&'static str]),
    Of(fn() -> Arc<Value>),
}

/// What answers an operation, with what it takes and gives.
pub(super) struct Handled {
    pub(super) responder: Responder,
    pub(super) takes: Option<Shape>,
    pub(super) takes_nothing: bool,
    pub(super) gives: (u16, Option<Shape>),
    pub(super) query: Parameters,
}

/// A handler with typed records: `call!(HANDLER, query TYPE, KIND TYPE => STATUS TYPE)`, where KIND
/// is `body`, `optional`, `patch`, `optional_patch` or `events`.
macro_rules! call {
    ($handler:path $(, query $query:ty)? => $status:literal $($gives:ty)?) => {
        Handled {
            responder: call!(Json, $handler, $status, [$($gives)?], [$($query)?], [] ),
            takes: None,
            takes_nothing: false,
            gives: ($status, call!(@shape $($gives)?)),
            query: call!(@query $($query)?),
        }
    };
    ($handler:path, body $takes:ty => $status:literal $($gives:ty)?) => {
        call!(@body Json body false, $handler, $takes, $status, [$($gives)?])
    };
    ($handler:path, optional $takes:ty => $status:literal $($gives:ty)?) => {
        call!(@body Json optional true, $handler, $takes, $status, [$($gives)?])
    };
    ($handler:path, patch $takes:ty => $status:literal $($gives:ty)?) => {
        call!(@body Patch body false, $handler, $takes, $status, [$($gives)?])
    };
    ($handler:path, optional_patch $takes:ty => $status:literal $($gives:ty)?) => {
        call!(@body Patch optional true, $handler, $takes, $status, [$($gives)?])
    };
    ($handler:path, events $takes:ty => $status:literal $($gives:ty)?) => {
        call!(@body Events body false, $handler, $takes, $status, [$($gives)?])
    };
    (@body $kind:ident $read:ident $nothing:literal, $handler:path, $takes:ty, $status:literal,
        [$($gives:ty)?]) => {
        Handled {
            responder: call!($kind, $handler, $status, [$($gives)?], [], [$read::<$takes>]),
            takes: call!(@shape $takes),
            takes_nothing: $nothing,
            gives: ($status, call!(@shape $($gives)?)),
            query: call!(@query),
        }
    };
    ($kind:ident, $handler:path, $status:literal, [$($gives:ty)?], [$($query:ty)?],
        [$($read:ident::<$takes:ty>)?]) => {
        Responder::Direct(
            |app, who, request| {
                Box::pin(async move {
                    let call = Call { app, who, request };
                    call!(@no_query call $($query)?);
                    let answer: Answer<call!(@gives $($gives)?)> = $handler(
                        call $(, call.query::<$query>()?)? $(, call.$read::<$takes>()?)?
                    ).await?;
                    answer.respond($status)
                })
            },
            BodyKind::$kind,
        )
    };
    (@no_query $call:ident) => { $call.no_query()? };
    (@no_query $call:ident $query:ty) => {};
    (@gives) => { () };
    (@gives $gives:ty) => { $gives };
    (@shape) => { None };
    (@shape $of:ty) => { Some(Shape::Of(schema::of::<$of>)) };
    (@query) => { Parameters::Named(&[]) };
    (@query $query:ty) => { Parameters::Of(schema::whole::<$query>) };
}

/// A handler that reads the request itself.
macro_rules! here {
    ($handler:path) => {
        here!($handler, Json)
    };
    ($handler:path, $takes:ident) => {
        Handled::by(Responder::Direct(
            |app, who, request| Box::pin($handler(app, who, request)),
            BodyKind::$takes,
        ))
    };
}

impl Handled {
    pub(super) const fn by(responder: Responder) -> Self {
        Handled {
            responder,
            takes: None,
            takes_nothing: false,
            gives: (200, None),
            query: Parameters::Named(&[]),
        }
    }
}

macro_rules! methods {
    ($($name:ident $method:ident),*) => {
        $(pub(super) const fn $name(
            path: &'static str,
            policy: Policy,
            by: Handled,
            id: &'static str,
            summary: &'static str,
        ) -> Operation {
            let Handled { responder, takes, takes_nothing, gives, query } = by;
            Operation {
                route: Route { method: Method::$method, path, policy, responder },
                id, summary, takes, takes_nothing, gives, refuses: &[], query,
            }
        })*
    };
}
methods!(get GET, post POST, put PUT, patch PATCH, delete DELETE);

impl Operation {
    pub(super) const fn takes(mut self, schema: &'static str) -> Self {
        self.takes = Some(Shape::Named(schema));
        self
    }

    /// A body that the handler reads itself.
    pub(super) const fn takes_a(mut self, of: SchemaOf) -> Self {
        self.takes = Some(Shape::Of(of));
        self
    }

    /// As [`Operation::takes_a`]; an empty body counts as `{}`.
    pub(super) const fn may_take_a(mut self, of: SchemaOf) -> Self {
        self.takes_nothing = true;
        self.takes_a(of)
    }

    pub(super) const fn gives(mut self, status: u16, schema: &'static str) -> Self {
        self.gives = (status, Some(Shape::Named(schema)));
        self
    }

    pub(super) const fn gives_nothing(mut self) -> Self {
        self.gives = (204, None);
        self
    }

    pub(super) const fn refuses(mut self, statuses: &'static [u16]) -> Self {
        self.refuses = statuses;
        self
    }

    pub(super) const fn query(mut self, names: &'static [&'static str]) -> Self {
        self.query = Parameters::Named(names);
        self
    }
}
