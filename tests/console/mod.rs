//! The console in a browser: its pages against a real gateway. The scripts beside drive Chromium.

mod access;
mod captures;
mod overview;
mod pages;
mod pictures;
mod routing;
mod scale;
