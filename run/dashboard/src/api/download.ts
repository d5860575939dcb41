import { api, unwrap } from "./client";

/** Saves every reading of a range as CSV. A plain link could not send the token, which is in a header. */
export async function downloadReadings(sensorID: string, start: number, end: number): Promise<void> {
  const query = {
    start_time: new Date(start).toISOString(), end_time: new Date(end).toISOString(), format: "csv" as const,
  };
  const blob = (await unwrap(
    api.GET("/api/v1/data/historical/{sensor_id}", {
      params: { path: { sensor_id: sensorID }, query }, parseAs: "blob",
    }),
  )) as unknown as Blob;
  save(blob, `${sensorID.replaceAll(":", "-")}-${query.start_time.slice(0, 10)}.csv`);
}

/** Saves a file under a name. */
export function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
