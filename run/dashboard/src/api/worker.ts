import { poller, type Command, type Told } from "./poll";

const run = poller((told: Told) => postMessage(told));
onmessage = ({ data }: MessageEvent<Command>) => run(data);
