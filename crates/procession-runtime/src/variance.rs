//! The variance of typed handles.
//!
//! A handle stands for a process, a name or a cell with a type that was fixed when it was made. The
//! runtime finds that type again by its `TypeId`, and the layout and the lifetimes of the messages
//! depend on it. A handle must therefore not be coerced to one of another type, even where one type
//! is a subtype of the other. For example, `for<'a> fn(&'a str)` is a subtype of `fn(&'static
//! str)`, and both are `'static` with different ids.
//!
//! A value that only owns what its parameter names may stay covariant. Examples are
//! [`Events`](crate::machine::events::Events), the errors that return a message, and the futures
//! that own a result. No value of the parameter type can be put into them.
//!
//! A field of the type [`Typed`](crate::process::typed::Typed) makes a handle invariant. Every
//! typed public handle is listed below. For each handle, three doc tests check that it can be
//! passed on as it is, and that no coercion compiles in either direction.

macro_rules! invariant {
    ($($name:ident: $handle:literal;)*) => {$(
        #[doc = concat!("```\n", invariant!(@ $handle), "fn same(it: Of<Any>) -> Of<Any> { it }\n```")]
        #[doc = concat!(
            "```compile_fail,E0308\n",
            invariant!(@ $handle),
            "fn covariant(it: Of<Any>) -> Of<Forever> { it }\n```",
        )]
        #[doc = concat!(
            "```compile_fail,E0308\n",
            invariant!(@ $handle),
            "fn contravariant(it: Of<Forever>) -> Of<Any> { it }\n```",
        )]
        struct $name;
    )*};
    (@ $handle:literal) => {
        concat!(
            "#![allow(dead_code)]\n",
            "type Any = for<'a> fn(&'a str);\n",
            "type Forever = fn(&'static str);\n",
            "struct Ask<T>(T);\n",
            "impl<T: Send + 'static> procession::machine::Command for Ask<T> {\n",
            "    type Output = T;\n",
            "    const ID: procession::machine::CommandId = procession::machine::CommandId::new(277);\n",
            "}\n",
            "type Of<T> = procession::", $handle, ";\n",
        )
    };
}

invariant! {
    Address: "Address<T>";
    AsyncWork: "machine::AsyncWork<T>";
    AsyncFnPoolArgument: "pool::AsyncFnPool<T, ()>";
    AsyncFnPoolResult: "pool::AsyncFnPool<(), T>";
    ChildMessage: "Child<T, ()>";
    ChildResult: "Child<(), T>";
    CoContext: "coroutine::Context<T>";
    CoLocal: "coroutine::Local<T>";
    Context: "Context<T>";
    Done: "machine::Done<Ask<T>>";
    FnPoolArgument: "pool::FnPool<T, ()>";
    FnPoolResult: "pool::FnPool<(), T>";
    JoinHandle: "JoinHandle<T>";
    JobHandle: "pool::JobHandle<T>";
    Mutex: "sync::Mutex<T>";
    MutexGuard: "sync::MutexGuard<'static, T>";
    Named: "process::Named<T>";
    ObjectPool: "pool::ObjectPool<T>";
    OnceCell: "sync::OnceCell<T>";
    Pooled: "pool::Pooled<'static, T>";
    Recv: "mailbox::Recv<'static, T>";
    Recipient: "mailbox::Recipient<T>";
    Receiver: "sync::channel::Receiver<T>";
    Receiving: "sync::channel::Receiving<'static, T>";
    Reply: "Reply<T>";
    RwLock: "sync::RwLock<T>";
    RwLockReadGuard: "sync::RwLockReadGuard<'static, T>";
    RwLockWriteGuard: "sync::RwLockWriteGuard<'static, T>";
    ChildSpecMessage: "supervisor::ChildSpec<procession::Address<T>>";
    OnceSpecMessage: "supervisor::OnceSpec<T, ()>";
    TemplateArgument: "supervisor::Template<T, ()>";
    TemplateMessage: "supervisor::Template<(), T>";
    Sender: "sync::channel::Sender<T>";
    Sending: "sync::channel::Sending<'static, T>";
    SendWait: "mailbox::SendWait<'static, T>";
    ThreadMailbox: "mailbox::ThreadMailbox<T>";
}
