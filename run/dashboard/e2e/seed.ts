// History that would take a month to come by itself, put straight into the
// tables. What a test is about comes through the gateway and the API.
import pg from "pg";

export async function query(text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: process.env.COLDAISLE_DATABASE });
  await client.connect();
  try {
    return (await client.query(text, values)).rows as Record<string, unknown>[];
  } finally {
    await client.end();
  }
}

/** Incidents of a customer that are over and that nobody has seen, an hour apart, each of
 * a node in no room with an excursion. */
export async function pastIncidents(email: string, number: number): Promise<void> {
  await query(`WITH began AS (
      SELECT i, c.id AS customer, now() - i * interval '1 hour' AS at FROM customers c, generate_series(1,
      $2::int) AS i WHERE c.email = $1
    ), told AS (
      INSERT INTO room_incidents (customer_id, node_id, cause, severity, actual, start_time, end_time, lasting,
      breaking, late, parts)
      SELECT customer, 'past-' || i, 'too_hot', 'critical', true, at, at, false, false, false, 1 FROM began
      RETURNING id, customer_id, node_id, start_time
    )
    INSERT INTO excursions (incident_id, customer_id, kind, channel, node_id, sensor_name, quantity, direction,
    limit_value, severity, start_time, end_time, lasting, peak, peak_time, resolution)
    SELECT id, customer_id, 'threshold', 0, node_id, 'Rack ' || substr(node_id, 6), 'temperature', 'above', 27,
    'critical', start_time, start_time, false, 41, start_time, 'cleared' FROM told`,
    [email, number]);
}

/** Readings of nodes every step seconds, from and to so many seconds ago, of a room with a daily wave. */
export async function seedReadings(nodes: string[], from: number, to: number, step: number): Promise<void> {
  await query(`
    DO $$ DECLARE day date; BEGIN
      FOR day IN SELECT generate_series((now() AT TIME ZONE 'UTC')::date - 32, (now() AT TIME ZONE 'UTC')::date,
      '1 day') LOOP
        EXECUTE format('CREATE TABLE IF NOT EXISTS sensor_data.readings_%s PARTITION OF sensor_data.readings FOR VALUES
        FROM (%L) TO (%L)',
          to_char(day, 'YYYYMMDD'), day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
      END LOOP;
    END $$`);
  // A customer sees of the open channel what came since the sensor was created.
  await query(
    "UPDATE open_holds SET held_from = LEAST(held_from, now() - make_interval(secs => $2)) WHERE node_id = ANY($1)",
    [nodes, from],
  );
  await query(`
    INSERT INTO sensor_data.readings (node_id, timestamp, message_id, temperature, humidity)
    SELECT node, t, 'seed' || extract(epoch FROM t)::bigint,
      round((22.5 + (i % 3) + 1.6 * sin(extract(epoch FROM t) / 13751) + 0.5 * sin(extract(epoch FROM t) / 997 + i) +
      random() * 0.3)::numeric, 1),
      round((43 + (i % 4) + 3 * cos(extract(epoch FROM t) / 13751) + random() * 0.8)::numeric, 1)
    FROM unnest($1::text[]) WITH ORDINALITY AS n(node, i),
      generate_series(now() - make_interval(secs => $2), now() - make_interval(secs => $3),
      make_interval(secs => $4)) AS t
    -- An outage, so that charts have a gap to show.
    WHERE NOT (i = 2 AND t BETWEEN now() - interval '9 hours' AND now() - interval '6 hours')
    ON CONFLICT DO NOTHING`, [nodes, from, to, step]);
  // Hours that have left the raw days are read from their aggregates, which ingest makes of what it writes itself.
  await query(`
    INSERT INTO sensor_data.hours
      (node_id, customer_id, hour, count, sum_temperature, min_temperature, max_temperature, sum_humidity,
      min_humidity, max_humidity)
    SELECT node_id, customer_id, date_trunc('hour', timestamp, 'UTC'), count(*),
      sum(temperature), min(temperature), max(temperature), sum(humidity), min(humidity), max(humidity)
    FROM sensor_data.readings
    WHERE node_id = ANY($1) AND timestamp < (SELECT COALESCE(until, date_trunc('hour', now() - interval '8 days',
    'UTC')) FROM sensor_data.hours_until)
    GROUP BY 1, 2, 3
    ON CONFLICT DO NOTHING`, [nodes]);
}

/** For the demonstration's customer: a day of readings, maintenance, and predictions of which 38 are judged. */
export async function seedDemo(): Promise<void> {
  const sensors = await query("SELECT s.node_id, s.customer_id FROM sensors s JOIN customers c ON c.id = "
    + "s.customer_id WHERE c.email = 'demo@example.com' ORDER BY s.key");
  const nodes = sensors.map((row) => row.node_id as string);
  // Up to the present: the nodes began only now.
  await seedReadings(nodes, 86_400, 30, 60);
  await query(`
    INSERT INTO maintenance_windows (id, customer_id, room_ids, start_time, duration_s, time_zone, weekdays, comment,
    created_by)
    VALUES (0, $1, ARRAY(SELECT id FROM server_rooms WHERE customer_id = $1), date_trunc('day',
    now()) - interval '7 days' + interval '7 hours', 7200, 'Europe/Berlin', '{2,4}', 'Filters are changed', 'demo01')`,
    [sensors[0]?.customer_id]);
  await query(`
    INSERT INTO prediction_feedback (sensor_id, timestamp, predicted_temp, predicted_humidity, actual_temp,
    actual_humidity, anomaly_predicted, feedback, message_id)
    SELECT $1, now() - i * interval '11 minutes', 23, 44, 23, 44, false, CASE WHEN i > 12 THEN 'ok' END, 'seed' || i
    FROM generate_series(1, 50) AS i ON CONFLICT DO NOTHING`, [nodes[1]]);
}
