// Azurite's clock, as the tests set it: the time in the file CLOCK, in milliseconds, and one more each time it is asked,
// since ETags are made of the time. Loaded before Azurite, with `node --require`.
"use strict";
const fs = require("fs");

const SystemDate = Date;
let asked = 0;

function now() {
  return Number(fs.readFileSync(process.env.CLOCK, "utf8")) + asked++;
}

globalThis.Date = new Proxy(SystemDate, {
  apply: () => new SystemDate(now()).toString(),
  construct: (target, given, made) => Reflect.construct(target, given.length ? given : [now()], made),
  get: (target, name) => (name === "now" ? now : Reflect.get(target, name)),
});
