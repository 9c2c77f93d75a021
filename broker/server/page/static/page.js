// Beside htmx: says so when figures could not be renewed, and keeps the end of a job's output in view, and renews a job's page when something happens.
"use strict";
{
  const say = (text) => {
    const place = document.getElementById("silent");
    if (place && place.textContent !== text) place.textContent = text;
  };
  const failed = () => say("The server does not answer; the figures are of the time that is told here. ");
  document.addEventListener("htmx:error", failed);
  document.addEventListener("htmx:response:error", failed);

  // Whoever reads the end of the output stays at its end; whoever has scrolled up stays where they are.
  const printed = () => document.querySelector("#output pre");
  const atEnd = (part) => part.scrollHeight - part.scrollTop - part.clientHeight < 24;
  let follows = true;
  const toEnd = () => {
    const part = printed();
    if (part && follows) part.scrollTop = part.scrollHeight;
  };
  document.addEventListener("htmx:before:swap", () => {
    const part = printed();
    follows = !part || atEnd(part);
  });
  document.addEventListener("htmx:after:swap", () => {
    say("");
    toEnd();
  });
  toEnd();

  // A job's page hears of news at once; without, its figures are renewed all the same, later.
  const live = document.querySelector("[data-news]");
  if (live) {
    const source = new EventSource(live.dataset.news);
    const waits = new Map();
    const renew = (kind, selector) =>
      source.addEventListener(kind, () => {
        if (waits.has(kind)) return;
        waits.set(kind, setTimeout(() => {
          waits.delete(kind);
          const part = document.querySelector(selector);
          if (part) htmx.trigger(part, "every");
        }, 500));
      });
    renew("event", "#main");
    renew("output", "#output-renewal");
    source.addEventListener("end", (message) => {
      if (JSON.parse(message.data).because !== "time") source.close();
    });
  }
}
