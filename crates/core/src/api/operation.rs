//! An operation: a route, its inputs and outputs, and its part of the OpenAPI document.

use std::sync::Arc;

use http::Method;
use schemars::JsonSchema;
use serde_json::Value;

use super::route::{Policy, Responder, Route};
use rerouter_records::schema::{self, SchemaOf};
use rerouter_store::Action;

pub(super) struct Operation {
    pub(super) route: Route,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// Descriptions of the path's variable parts.
    pub(super) parts: &'static [&'static str],
    pub(super) noted: Noted,
    /// Schema of the request body.
    pub(super) takes: Option<SchemaOf>,
    /// Whether an empty body counts as `{}`.
    pub(super) takes_nothing: bool,
    /// Status and schema of a success.
    pub(super) gives: (u16, Option<SchemaOf>),
    /// Error statuses beside those of every operation of the surface.
    pub(super) refuses: &'static [u16],
    pub(super) query: Option<QueryOf>,
}

type QueryOf = fn() -> Arc<Value>;

#[derive(Clone, Copy)]
pub(super) enum Noted {
    /// By a row with this action.
    As(Action),
    /// Not at all. Only an evaluation that reads captures of other users has a row.
    ChangesNothing,
    /// Not at all, because the call is captured. Only an admin's reroute of another user's capture
    /// has a row.
    Captured,
    /// Not at all: a node reports about itself, and the report is logged.
    Reported,
}

pub(super) struct Handled {
    pub(super) responder: Responder,
    pub(super) takes: Option<SchemaOf>,
    pub(super) takes_nothing: bool,
    pub(super) gives: (u16, Option<SchemaOf>),
    pub(super) query: Option<QueryOf>,
}

/// A handler with typed records: `call!(HANDLER, query TYPE, KIND TYPE => STATUS TYPE)`. KIND is
/// `body`, `optional`, `patch`, `optional_patch` or `events`, or `raw` and a [`BodyKind`] if the
/// handler reads the body itself.
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
    ($handler:path, raw $kind:ident $takes:ty $(, query $query:ty)?
        => $status:literal $($gives:ty)?) => {
        Handled {
            responder: call!($kind, $handler, $status, [$($gives)?], [$($query)?], [] ),
            takes: call!(@shape $takes),
            takes_nothing: false,
            gives: ($status, call!(@shape $($gives)?)),
            query: call!(@query $($query)?),
        }
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
    (@shape $of:ty) => { Some(schema::of::<$of>) };
    (@query) => { None };
    (@query $query:ty) => { Some(schema::whole::<$query>) };
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
        Handled { responder, takes: None, takes_nothing: false, gives: (200, None), query: None }
    }
}

macro_rules! methods {
    ($($name:ident $method:ident $(($noted:ident: $kind:ty))?),*) => {
        $(pub(super) const fn $name(
            path: &'static str,
            policy: Policy,
            $($noted: $kind,)?
            by: Handled,
            id: &'static str,
            summary: &'static str,
        ) -> Operation {
            let Handled { responder, takes, takes_nothing, gives, query } = by;
            Operation {
                route: Route { method: Method::$method, path, policy, responder },
                id, summary, parts: &[], noted: methods!(@noted $($noted)?),
                takes, takes_nothing, gives, refuses: &[], query,
            }
        })*
    };
    (@noted) => { Noted::ChangesNothing };
    (@noted $noted:ident) => { $noted };
}
methods!(
    get GET,
    post POST (noted: Noted),
    put PUT (noted: Noted),
    patch PATCH (noted: Noted),
    delete DELETE (noted: Noted)
);

impl Operation {
    /// Sets the schema of a body that the handler reads itself.
    pub(super) const fn takes<T: JsonSchema>(mut self) -> Self {
        self.takes = Some(schema::of::<T>);
        self
    }

    /// Like [`Operation::takes`], but an empty body counts as `{}`.
    pub(super) const fn may_take<T: JsonSchema>(mut self) -> Self {
        self.takes_nothing = true;
        self.takes::<T>()
    }

    pub(super) const fn gives<T: JsonSchema>(mut self) -> Self {
        self.gives = (200, Some(schema::of::<T>));
        self
    }

    pub(super) const fn refuses(mut self, statuses: &'static [u16]) -> Self {
        self.refuses = statuses;
        self
    }

    /// Sets the schema of a query that the handler reads itself.
    pub(super) const fn query<T: JsonSchema + 'static>(mut self) -> Self {
        self.query = Some(schema::whole::<T>);
        self
    }

    pub(super) const fn at(mut self, parts: &'static [&'static str]) -> Self {
        self.parts = parts;
        self
    }
}
